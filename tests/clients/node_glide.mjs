// node_glide.mjs PORT NAME - GLIDE, Valkey's own client.
import { GlideClient } from "@valkey/valkey-glide";
const [port, name] = process.argv.slice(2);
const server = await GlideClient.createClient({ addresses: [{ host: "127.0.0.1", port: +port }] });
const allowed = [];
for (let i = 0; i < 3; i++) allowed.push((await server.customCommand(["WEIR.TRY", "login", name]))[0]);
if (allowed.join() !== "1,1,0") throw new Error(`decisions: ${allowed}`);
if (await server.customCommand(["WEIR.TRY", "none", name]).then(() => true, () => false)) throw new Error("no error");
console.log("ok");
process.exit(0);
