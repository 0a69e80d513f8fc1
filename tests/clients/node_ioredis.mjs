// node_ioredis.mjs PORT NAME - ioredis.
import Redis from "ioredis";
const [port, name] = process.argv.slice(2);
const server = new Redis({ port: +port, db: 0, connectionName: "tests" });
const allowed = [];
for (let i = 0; i < 3; i++) allowed.push((await server.call("WEIR.TRY", "login", name))[0]);
if (allowed.join() !== "1,1,0") throw new Error(`decisions: ${allowed}`);
const both = await server.multi().ping().call("WEIR.TRY", "tokens", name, "10").exec();
if (both[0][1] !== "PONG" || both[1][1][2] !== 90) throw new Error(`transaction: ${both}`);
if (await server.call("WEIR.TRY", "none", name).then(() => true, () => false)) throw new Error("no error");
console.log("ok");
process.exit(0);
