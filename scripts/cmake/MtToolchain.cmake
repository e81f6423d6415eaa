# Compiler launcher, linker and sanitizers, for every target.
# ccache passes over every call with precompiled headers (MtCommonHeaders) unless it is told that macros defined inside them and
# __TIME__ do not matter, and unless the compiler keeps the header's name in what it preprocesses. With the base directory and
# compile.sh a build in another folder finds what this one compiled.
find_program(MT_CCACHE ccache)
if(MT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_ABSSTDERR=1 CCACHE_PCH_EXTSUM=1)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # clang's -E reads the headers themselves, which a target need not find: what a unit depends on comes from its .d file.
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER CCACHE_DEPEND=1)
  endif()
  list(APPEND CMAKE_CXX_COMPILER_LAUNCHER bash ${CMAKE_SOURCE_DIR}/scripts/cmake/compile.sh ${CMAKE_SOURCE_DIR} ${MT_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${MT_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  else()
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()

# g++ looks for memory that it may reuse from 128 MiB on, a tenth of its time; most units take less than this, in KiB, in all.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=786432>)
endif()

# __FILE__ and debug information name files from the root of the sources, wherever that is.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)

find_program(MT_MOLD mold)
if(MT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(MT_SANITIZE)
  add_compile_options(-fsanitize=${MT_SANITIZE} -fno-omit-frame-pointer -O1 -gline-tables-only)
  add_link_options(-fsanitize=${MT_SANITIZE})
  if(MT_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
    # Not in libraries' own headers, where checks are a seventh of an object and find nothing of ours.
    file(WRITE ${CMAKE_BINARY_DIR}/gen/sanitize_ignore.txt "[undefined]\nsrc:/usr/include/*\n")
    # As seen from the build's folder, so that ccache meets the same argument in every checkout.
    add_compile_options(-fsanitize-ignorelist=gen/sanitize_ignore.txt)
  endif()
endif()

# Everywhere, since precompiled headers want it alike (MtCommonHeaders).
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-pthread>)
