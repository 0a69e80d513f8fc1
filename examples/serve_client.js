/* serve_client.js SOCKET - asks weir serve from Node: logins by address, and tokens that are settled afterwards.
 *
 *     login 1: allowed, 1 left
 *     login 2: allowed, 0 left
 *     login 3: denied, 0 left
 *     tokens: 100 reserved, 37 used, 963 left
 */
const { createClient } = require("redis");

async function main() {
    const weir = createClient({ socket: { path: process.argv[2] } });
    await weir.connect();
    const ask = (...words) => weir.sendCommand(words.map(String));

    for (let attempt = 1; attempt <= 3; attempt++) {
        const [allowed, , left] = await ask("WEIR.TRY", "login", "192.0.2.7");
        console.log(`login ${attempt}: ${allowed ? "allowed" : "denied"}, ${left} left`);
    }

    const reserved = await ask("WEIR.RESERVE", "tokens", "alice", 100);
    if (reserved[0]) {
        const reservation = reserved.at(-1), permits = 100, used = 37; // which only the model's answer tells
        await ask("WEIR.SETTLE", "tokens", "alice", reservation, used);
        const [, , left] = await ask("WEIR.PEEK", "tokens", "alice");
        console.log(`tokens: ${permits} reserved, ${used} used, ${left} left`);
    }
    await weir.quit();
}

main().catch((error) => {
    console.error(`weir serve cannot be asked: ${error.message}`);
    process.exit(1);
});
