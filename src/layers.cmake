# layers.cmake - fail if a source file includes a header of a folder that lies above its own, or beside it.
#
#     cmake -DSOURCE=FOLDER -P layers.cmake
#
# Every build runs this (CMakeLists.txt here). The lists below are the declared order of the folders: a folder may
# include its own headers, those that may_include() names, and <weir/...>. A folder without a line may include nothing.

cmake_minimum_required(VERSION 3.22)

function(may_include folder)
  set(allowed_${folder} ${folder} ${ARGN} PARENT_SCOPE)
endfunction()

# The core is one stack. Each folder sees the folders before it.
set(core "")
foreach(folder IN ITEMS ground policy algorithm limiter outage follow api text)
  may_include(core/${folder} ${core})
  list(APPEND core core/${folder})
  set(core_to_${folder} ${core})
endforeach()

# Backends are strangers to one another. They share backends/shared; open.c alone knows them all.
may_include(backends/shared ${core_to_follow})
may_include(backends/memory backends/shared ${core_to_limiter})
may_include(backends/machine backends/shared ${core_to_limiter})
may_include(backends/hybrid backends/shared ${core_to_limiter})
may_include(backends/consul backends/shared ${core_to_follow})
may_include(backends/follow backends/shared ${core_to_follow})
set(redis "")
foreach(folder IN ITEMS wire flight engine cluster inspect)
  list(APPEND redis backends/redis/${folder})
  may_include(backends/redis/${folder} ${redis} backends/shared ${core_to_limiter})
endforeach()
may_include(backends/redis ${redis} backends/shared ${core_to_limiter})
# The control socket answers by the functions that every program may call.
may_include(control ${core})
may_include(backends control backends/memory backends/machine backends/redis backends/redis/inspect backends/shared backends/hybrid backends/consul backends/follow ${core_to_follow}
            core/api)

# The program is a program like any other: the public headers and its own.
may_include(cli cli/live cli/replay cli/replay/input)
may_include(cli/live cli cli/survey)
may_include(cli/survey cli)
may_include(cli/serve cli)
may_include(cli/replay cli cli/replay/input)
may_include(cli/replay/input cli cli/replay)

# So is the nginx module.
may_include(nginx)

set(failed FALSE)
file(GLOB_RECURSE sources RELATIVE ${SOURCE} ${SOURCE}/*.c ${SOURCE}/*.h)
foreach(source IN LISTS sources)
  cmake_path(GET source PARENT_PATH folder)
  file(STRINGS ${SOURCE}/${source} includes REGEX "^[ \t]*#[ \t]*include[ \t]+(\"|<(core|backends|cli|nginx)/)")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE ".*include[ \t]+[\"<]([^\">]*).*" "\\1" header "${include}")
    cmake_path(GET header PARENT_PATH below)
    if(NOT below IN_LIST allowed_${folder})
      message("src/${source}: ${folder} may not include \"${header}\", see src/layers.cmake")
      set(failed TRUE)
    endif()
  endforeach()
endforeach()
if(failed)
  message(FATAL_ERROR "an include leaves its layer")
endif()
