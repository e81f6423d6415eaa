# Compiler launcher, linker and sanitizers, for every target.
find_program(MT_CCACHE ccache)
if(MT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MT_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${MT_CCACHE})
endif()

find_program(MT_MOLD mold)
if(MT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(MT_SANITIZE)
  add_compile_options(-fsanitize=${MT_SANITIZE} -fno-omit-frame-pointer -O1 -gline-tables-only)
  add_link_options(-fsanitize=${MT_SANITIZE})
  if(MT_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Everywhere, since precompiled headers want it alike (MtCommonHeaders).
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-pthread>)
