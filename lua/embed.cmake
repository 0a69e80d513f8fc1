# embed.cmake - cmake -DSCRIPTS=<names> -DOUT=<file.c> -P embed.cmake: turns the scripts into a C file.
#
# Two lines of a .lua file are directives. Other comments and all indentation are removed.
#     --@include FILE.lua [NAME]   inserts the file; the word ALGORITHM in it becomes NAME
#     --@paste NAME PART           inserts the lines of NAME.lua between "--@part PART" and the next "--@part"
cmake_minimum_required(VERSION 3.22)

function(read_lua path out)
  file(READ ${path} text)
  string(REGEX REPLACE "--([^@\n][^\n]*)?\n" "\n" text "${text}")
  string(REGEX REPLACE "[ \t]*\n[ \t\n]*" "\n" text "\n${text}")
  string(SUBSTRING "${text}" 1 -1 text)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(read_part path part out)
  read_lua(${path} text)
  string(FIND "${text}" "--@part ${part}\n" start)
  if(start EQUAL -1)
    message(FATAL_ERROR "${path} has no part ${part}")
  endif()
  string(LENGTH "--@part ${part}\n" head)
  math(EXPR start "${start} + ${head}")
  string(SUBSTRING "${text}" ${start} -1 text)
  string(FIND "${text}" "--@part " end)
  string(SUBSTRING "${text}" 0 ${end} text)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(read_script name out)
  read_lua(${CMAKE_CURRENT_LIST_DIR}/${name}.lua text)
  while(text MATCHES "--@(include|paste) ([a-z_]+)([^\n]*)\n")
    set(line "${CMAKE_MATCH_0}")
    set(directive ${CMAKE_MATCH_1})
    set(file ${CMAKE_CURRENT_LIST_DIR}/${CMAKE_MATCH_2}.lua)
    string(REGEX REPLACE "^\\.lua|[ \t]" "" argument "${CMAKE_MATCH_3}")
    if(directive STREQUAL "paste")
      read_part(${file} ${argument} content)
    else()
      read_lua(${file} content)
      if(argument)
        string(REPLACE "ALGORITHM" "${argument}" content "${content}")
      endif()
    endif()
    string(REPLACE "${line}" "${content}" text "${text}")
  endwhile()
  if(text MATCHES "--|ALGORITHM")
    message(FATAL_ERROR "${name}.lua: a directive was left over")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

set(texts "")
set(rows "")
foreach(name IN LISTS SCRIPTS)
  read_script(${name} text)
  string(SHA1 sha1 "${text}")
  string(LENGTH "${text}" len)
  string(HEX "${text}" bytes)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}") # a string literal would be longer than C11 guarantees
  string(TOUPPER ${name} id)
  string(APPEND texts "static const char ${name}[] = {${bytes}0};\n")
  string(APPEND rows "    [REDIS_${id}] = { \"${name}\", \"${sha1}\", ${name}, ${len} },\n")
endforeach()
file(WRITE ${OUT} "/* redis_scripts.c - generated from lua/ by embed.cmake. */
#include \"backends/redis/wire/scripts.h\"

${texts}
const struct redis_script redis_scripts[REDIS_SCRIPT_COUNT] = {
${rows}};
")
