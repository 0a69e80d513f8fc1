/* script_host.c - runs the scripts of lua/ in this process: see script_host.h. */
#include "script_host.h"

#include "fuzz.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

struct host_key host_keys[HOST_KEYS];
int64_t host_now_us;

static lua_State *lua;
static int functions[REDIS_SCRIPT_COUNT]; /* in Lua's registry */

/* ---- The struct library: little-endian unsigned numbers and bytes ---- */

/* Return the number after a letter of the format; -1 if there is none. */
static int count_at(const char **format)
{
    char *end;
    if (**format < '0' || **format > '9')
        return -1;
    const long count = strtol(*format, &end, 10);
    *format = end;
    return (int)count;
}

/* Return how many bytes the letter before *format stands for; for 'c' it may be 0. */
static int width_at(lua_State *state, char letter, const char **format)
{
    const int count = count_at(format);
    if (letter == 'B')
        return 1;
    if (letter == 'd') /* only read */
        return 8;
    if (letter == 'I' && count >= 1 && count <= 7)
        return count;
    if (letter == 'c' && count >= 0)
        return count;
    return luaL_error(state, "a format that the scripts do not use");
}

/* Return the next letter, or 0 at the end. '<', for little-endian, may occur again. */
static char letter_at(lua_State *state, const char **format)
{
    if (*format == luaL_checkstring(state, 1) && **format != '<')
        luaL_error(state, "no byte order");
    while (**format == '<')
        ++*format;
    return **format ? *(*format)++ : '\0';
}

static int struct_pack(lua_State *state)
{
    const char *format = luaL_checkstring(state, 1);
    luaL_Buffer out;
    int argument = 2;
    char letter;
    luaL_buffinit(state, &out);
    while ((letter = letter_at(state, &format))) {
        const int width = width_at(state, letter, &format);
        if (letter == 'c') {
            size_t len;
            const char *bytes = luaL_checklstring(state, argument++, &len);
            luaL_argcheck(state, len >= (size_t)width, argument - 1, "string too short");
            luaL_addlstring(&out, bytes, width == 0 ? len : (size_t)width);
            continue;
        }
        const lua_Number number = luaL_checknumber(state, argument++);
        /* Redis would truncate it silently. */
        if (!(number >= 0) || number >= (lua_Number)(UINT64_C(1) << 8 * width) ||
            number != (lua_Number)(uint64_t)number)
            luaL_error(state, "%f is no whole number of %d bytes", number, width);
        for (int i = 0; i < width; i++)
            luaL_addchar(&out, (char)((uint64_t)number >> 8 * i));
    }
    luaL_pushresult(&out);
    return 1;
}

static int struct_unpack(lua_State *state)
{
    const char *format = luaL_checkstring(state, 1);
    size_t len;
    const char *bytes = luaL_checklstring(state, 2, &len);
    size_t at = (size_t)luaL_optinteger(state, 3, 1) - 1;
    int values = 0;
    char letter;
    for (; (letter = letter_at(state, &format)); values++) {
        const size_t width = (size_t)width_at(state, letter, &format);
        luaL_argcheck(state, letter != 'c' || width > 0, 1, "a format that the scripts do not use");
        luaL_argcheck(state, at <= len && width <= len - at, 2, "data string too short");
        if (letter == 'c') {
            lua_pushlstring(state, bytes + at, width);
            at += width;
            continue;
        }
        uint64_t number = 0;
        for (size_t i = width; i > 0; i--)
            number = number << 8 | (unsigned char)bytes[at + i - 1];
        lua_Number real = (lua_Number)number;
        if (letter == 'd')
            memcpy(&real, &number, sizeof real);
        luaL_checkstack(state, 2, "too many results");
        lua_pushnumber(state, real);
        at += width;
    }
    lua_pushinteger(state, (lua_Integer)at + 1);
    return values + 1;
}

/* ---- Commands ---- */

static int push_error(lua_State *state, const char *text)
{
    lua_newtable(state);
    lua_pushstring(state, text);
    lua_setfield(state, -2, "err");
    return 1;
}

static int error_reply(lua_State *state)
{
    return push_error(state, luaL_checkstring(state, 1));
}

static struct host_key *key_at(lua_State *state, int argument)
{
    size_t len;
    const char *name = luaL_checklstring(state, argument, &len);
    if (len != 1 || name[0] < 'a' || name[0] >= 'a' + HOST_KEYS)
        luaL_error(state, "no key of the call");
    return &host_keys[name[0] - 'a'];
}

static void push_value(lua_State *state, const struct host_key *key)
{
    if (key->kind == HOST_STRING)
        lua_pushlstring(state, (const char *)key->value, key->len);
    else
        lua_pushboolean(state, false);
}

static int command_time(lua_State *state)
{
    char text[24];
    lua_newtable(state);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%lld", (long long)(i == 0 ? host_now_us / 1000000 : host_now_us % 1000000));
        lua_pushstring(state, text);
        lua_rawseti(state, -2, i + 1);
    }
    return 1;
}

static int command_get(lua_State *state)
{
    const struct host_key *key = key_at(state, 2);
    if (key->kind == HOST_LIST)
        return push_error(state, "WRONGTYPE Operation against a key holding the wrong kind of value");
    push_value(state, key);
    return 1;
}

static int command_mget(lua_State *state)
{
    const int n = lua_gettop(state);
    lua_newtable(state);
    for (int i = 2; i <= n; i++) {
        push_value(state, key_at(state, i));
        lua_rawseti(state, -2, i - 1);
    }
    return 1;
}

static int command_psetex(lua_State *state)
{
    struct host_key *key = key_at(state, 2);
    const char *life = luaL_checkstring(state, 3);
    const char *bytes = luaL_checklstring(state, 4, &key->len);
    if (strspn(life, "0123456789") != strlen(life) || strlen(life) == 0 || strlen(life) > 16)
        return luaL_error(state, "a life of %s ms", life);
    key->life_ms = strtoll(life, NULL, 10);
    key->life_from_us = host_now_us;
    fuzz_must(key->life_ms > 0 && key->len <= sizeof key->value, "%s ms, %zu bytes: a state", life, key->len);
    key->kind = HOST_STRING;
    memcpy(key->value, bytes, key->len);
    key->writes++;
    key->lives++;
    return 0;
}

/* Redis keeps the time to live. */
static int command_setrange(lua_State *state)
{
    struct host_key *key = key_at(state, 2);
    size_t len;
    const char *offset = luaL_checkstring(state, 3), *bytes = luaL_checklstring(state, 4, &len);
    const size_t at = (size_t)strtoul(offset, NULL, 10);
    fuzz_must(key->kind == HOST_STRING && at + len <= key->len, "what is there is written over: %s", offset);
    memcpy(key->value + at, bytes, len);
    key->writes++;
    lua_pushinteger(state, (lua_Integer)key->len);
    return 1;
}

static int command_del(lua_State *state)
{
    struct host_key *key = key_at(state, 2);
    key->kind = HOST_NOTHING;
    key->writes++;
    return 0;
}

static int redis_call(lua_State *state)
{
    static const struct {
        const char *name;
        int arguments; /* 0: 2 or more */
        lua_CFunction command;
    } commands[] = {
        { "TIME", 1, command_time },     { "GET", 2, command_get }, { "MGET", 0, command_mget },
        { "PSETEX", 4, command_psetex }, { "DEL", 2, command_del }, { "SETRANGE", 4, command_setrange },
    };
    const char *name = luaL_checkstring(state, 1);
    const int n = lua_gettop(state);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0 &&
            (commands[i].arguments == n || (commands[i].arguments == 0 && n > 1)))
            return commands[i].command(state);
    return luaL_error(state, "%s with %d words: no command of the scripts", name, n);
}

/* ---- Life ---- */

/* As in Redis, a script cannot make globals or read undefined ones. */
static const char sealed[] = "KEYS, ARGV = {}, {} local function no(_, name) error('a global ' .. name, 2) end "
                             "setmetatable(_G, { __index = no, __newindex = no })";

static void open_once(void)
{
    static const luaL_Reg redis[] = {
        { "call", redis_call }, { "pcall", redis_call }, { "error_reply", error_reply }, { NULL, NULL }
    };
    static const luaL_Reg packing[] = { { "pack", struct_pack }, { "unpack", struct_unpack }, { NULL, NULL } };
    if (lua)
        return;
    lua = luaL_newstate();
    fuzz_must(lua, "there is memory");
    luaL_openlibs(lua);
    luaL_register(lua, "redis", redis);
    luaL_register(lua, "struct", packing);
    lua_settop(lua, 0);
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        fuzz_must(luaL_loadbuffer(lua, redis_scripts[i].text, redis_scripts[i].len, redis_scripts[i].name) == 0, "%s",
                  lua_tostring(lua, -1));
        functions[i] = luaL_ref(lua, LUA_REGISTRYINDEX);
    }
    fuzz_must(luaL_dostring(lua, sealed) == 0, "%s", lua_tostring(lua, -1));
}

struct host_answer host_call(enum redis_script_id script, const int *keys, int n_keys, const struct host_word *words,
                             int n_words)
{
    struct host_answer answer = { .is_error = false };
    open_once();
    lua_settop(lua, 0);
    lua_newtable(lua);
    for (int i = 0; i < n_keys; i++) {
        const char name = (char)('a' + keys[i]);
        lua_pushlstring(lua, &name, 1);
        lua_rawseti(lua, -2, i + 1);
    }
    lua_setglobal(lua, "KEYS");
    lua_newtable(lua);
    for (int i = 0; i < n_words; i++) {
        lua_pushlstring(lua, words[i].bytes, words[i].len);
        lua_rawseti(lua, -2, i + 1);
    }
    lua_setglobal(lua, "ARGV");
    lua_rawgeti(lua, LUA_REGISTRYINDEX, functions[script]);
    fuzz_must(lua_pcall(lua, 0, 1, 0) == 0, "%s: %s", redis_scripts[script].name, lua_tostring(lua, -1));
    if (lua_istable(lua, -1)) {
        answer.is_error = true;
        lua_getfield(lua, -1, "err");
    }
    answer.bytes = lua_tolstring(lua, -1, &answer.len); /* stays on Lua's stack */
    fuzz_must(answer.bytes, "%s returns a string, or an error", redis_scripts[script].name);
    return answer;
}

void host_tidy(void)
{
    open_once();
    lua_settop(lua, 0);
    lua_gc(lua, LUA_GCCOLLECT, 0);
}
