// node_redis.mjs PORT NAME - node-redis, 4 and later.
import { createClient } from "redis";
const [port, name] = process.argv.slice(2);
const server = createClient({ socket: { host: "127.0.0.1", port: +port }, database: 0, name: "tests" });
server.on("error", (error) => { console.log(String(error)); process.exit(1); });
await server.connect();
const allowed = [];
for (let i = 0; i < 3; i++) allowed.push((await server.sendCommand(["WEIR.TRY", "login", name]))[0]);
if (allowed.join() !== "1,1,0") throw new Error(`decisions: ${allowed}`);
const both = await server.multi().ping().addCommand(["WEIR.TRY", "tokens", name, "10"]).exec();
if (both[0] !== "PONG" || both[1][2] !== 90) throw new Error(`transaction: ${both}`);
if (await server.sendCommand(["WEIR.TRY", "none", name]).then(() => true, () => false)) throw new Error("no error");
console.log("ok");
process.exit(0);
