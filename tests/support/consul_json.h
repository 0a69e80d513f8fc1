/* consul_json.h - answers of a real agent (1.8.7), with many of the members that weir does not read. */
#ifndef WEIR_TESTS_CONSUL_JSON_H
#define WEIR_TESTS_CONSUL_JSON_H

/* GET /v1/health/service/...: an instance; `weights` is WEIGHS(...) or nothing. */
#define INSTANCE(id, weights)                                                                                        \
    "{\"Node\":{\"ID\":\"b1\",\"Node\":\"n\",\"Address\":\"10.0.0.1\",\"TaggedAddresses\":{\"lan\":\"10.0.0.1\"},"   \
    "\"Meta\":{}},\"Service\":{\"ID\":\"" id "\",\"Service\":\"api\",\"Tags\":[],\"Address\":\"\",\"Meta\":null,"    \
    "\"Port\":0," weights "\"EnableTagOverride\":false,\"Proxy\":{\"MeshGateway\":{},\"Expose\":{}},\"Connect\":{}," \
    "\"CreateIndex\":20},\"Checks\":[{\"Node\":\"n\",\"CheckID\":\"serfHealth\",\"Status\":\"passing\","             \
    "\"Definition\":{},\"Output\":\"\"}]}"
#define WEIGHS(weight) "\"Weights\":{\"Passing\":" #weight ",\"Warning\":1},"
#define ONLY_A "[" INSTANCE("a", WEIGHS(3)) "]"
#define A_AND_B "[" INSTANCE("b", "") "," INSTANCE("a", WEIGHS(3)) "]"

/* GET /v1/kv/...?recurse: a key; `value` is base64 in quotes, or null. */
#define KEY(key, value) \
    "{\"LockIndex\":0,\"Key\":\"" key "\",\"Flags\":0,\"Value\":" value ",\"CreateIndex\":7,\"ModifyIndex\":7}"
#define BUCKET "\"dG9rZW5fYnVja2V0IGxpbWl0PTEwMCBwZXJpb2Q9MXM=\"" /* token_bucket limit=100 period=1s */
#define NONSENSE "\"bm9uc2Vuc2U=\""                               /* nonsense */

#endif
