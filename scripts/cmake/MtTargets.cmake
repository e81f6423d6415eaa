# How this project declares targets. Sources are listed, never globbed.
#   mt_library(NAME SOURCES a.cc ... DEPS ...)      a static library of own code, warnings as errors
#   mt_executable(NAME SOURCES ... DEPS ...)        a program, installed to bin
#   mt_test(NAME SOURCES ... DEPS ... [OPTIMISED] [LABELS ...] [TIMEOUT s])   one GoogleTest program; CTest lists its
#       tests one by one. OPTIMISED: its own loops are what takes its time
#   mt_proto_library(NAME [GRPC] PROTOS ...)        generated at build time, warnings off, included as SYSTEM

# What the checks build: programs of tests that run under ThreadSanitizer, and of all that need no GPU.
add_custom_target(mt_tsan_tests)
add_custom_target(mt_unit_tests)
# Of test files alone: a third of the compiler's time. What is tested is optimised.
set(MT_TEST_OPTIONS -O0)
# Of plain code (below).
if(MT_SANITIZE)
  set(MT_PLAIN_OPTIONS -O0)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(MT_PLAIN_OPTIONS -O1)
endif()
include(MtCommonHeaders)

# Designated initializers leave out what keeps its default: that is their use, not a slip.
set(MT_WARNINGS -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wconversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND MT_WARNINGS -Wno-restrict)  # false alarms at "text" + std::string (GCC bug 105651)
    if(MT_COMMON_HEADERS)
      # More of them where the standard library comes from compiled headers, which are no system headers any more.
      list(APPEND MT_WARNINGS -Wno-array-bounds -Wno-stringop-overflow)
    endif()
  endif()
  if(CMAKE_UNITY_BUILD)
    list(APPEND MT_WARNINGS -Wno-subobject-linkage)  # takes a file joined with others for a header
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND MT_WARNINGS -Wthread-safety -Wno-sign-conversion)
endif()

function(mt_own_code target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${MT_WARNINGS}>)
endfunction()

# Plain code is hardly optimised: optimising is two thirds of the compiler's time with sanitizers, a quarter without. There all is
# plain but for code whose loops take the tests' time, here what waits for others, reads flags or draws tables.
set(MT_HOT_FOLDERS "^(kernels|worker/(checkpoint|comm|data|engine|hf|model|optim|parallel|train|tuning)|daemon/telemetry|tests)(/|$)")
set(MT_PLAIN_FOLDERS "^(client|common/(http|rpc|spec)|daemon|worker/(node|rank))(/|$)")
function(mt_is_plain out)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(${out} FALSE PARENT_SCOPE)
  if(MT_PLAIN_OPTIONS AND NOT folder MATCHES "${MT_HOT_FOLDERS}" AND (MT_SANITIZE OR folder MATCHES "${MT_PLAIN_FOLDERS}"))
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(mt_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  mt_own_code(${name})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  mt_is_plain(plain)
  if(plain)
    target_compile_options(${name} PRIVATE ${MT_PLAIN_OPTIONS})
    mt_common_headers(${name} plain_libraries)
  else()
    mt_common_headers(${name} libraries)
  endif()
endfunction()

function(mt_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  mt_own_code(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  mt_is_plain(plain)
  if(plain)
    target_compile_options(${name} PRIVATE ${MT_PLAIN_OPTIONS})
  endif()
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

function(mt_test name)
  cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT MT_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # Where files are joined, a further one costs the compiler a fifth of the first. A name that two of them keep to themselves is a
  # redefinition: rename one.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 20)
  mt_own_code(${name})
  target_include_directories(${name} SYSTEM PRIVATE ${CMAKE_BINARY_DIR}/gen)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(ARG_OPTIMISED)
    target_compile_options(${name} PRIVATE -O1)
  else()
    target_compile_options(${name} PRIVATE ${MT_TEST_OPTIONS})
    mt_common_headers(${name} tests)
  endif()
  # `tsan` marks programs that run under ThreadSanitizer too; they are built together there.
  if("tsan" IN_LIST ARG_LABELS)
    add_dependencies(mt_tsan_tests ${name})
  endif()
  if(NOT "gpu" IN_LIST ARG_LABELS)
    add_dependencies(mt_unit_tests ${name})
  endif()
  mt_add_tests(${name} ${ARG_TIMEOUT} "${ARG_LABELS}")
endfunction()

# Where the sources and the build are, for the tests that read files there (tests/paths.h): in one generated file, so that no
# other object depends on it.
configure_file(${CMAKE_SOURCE_DIR}/tests/paths.h.in ${CMAKE_BINARY_DIR}/gen/tests/paths.h @ONLY)

# CTest runs each test in a process of its own; with sanitizers, whose processes take longer to begin than most
# tests take, a quarter of a program's tests.
function(mt_add_tests name timeout labels)
  if(MT_SANITIZE)
    mt_add_sanitized_tests(${name} "${labels}" ${timeout} ${name})
  else()
    include(GoogleTest)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT ${timeout} LABELS "${labels}")
  endif()
endfunction()

# What may take longest begins first: a new build knows no times, and what begins last is waited for alone.
function(mt_add_sanitized_tests name labels timeout) # program, arguments...
  math(EXPR timeout "5 * ${timeout}")
  foreach(quarter RANGE 3)
    add_test(NAME ${name}.${quarter} COMMAND ${ARGN})
    set_tests_properties(${name}.${quarter} PROPERTIES TIMEOUT ${timeout} COST ${timeout} LABELS "${labels}"
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${quarter}")
  endforeach()
endfunction()

# Two names that protoc gives to static variables of every file, where files are joined.
set(MT_JOINED_PROTOS [[
#define MT_PASTED_(name, id) name##_##id
#define MT_PASTED(name, id) MT_PASTED_(name, id)
#define schemas MT_PASTED(schemas, MT_JOINED_FILE)
#define file_default_instances MT_PASTED(file_default_instances, MT_JOINED_FILE)]])

function(mt_proto_library name)
  cmake_parse_arguments(ARG "GRPC" "" "PROTOS;DEPS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out})
  set(generated "")
  # Any of the library's files may import another.
  list(TRANSFORM ARG_PROTOS PREPEND ${CMAKE_SOURCE_DIR}/proto/ OUTPUT_VARIABLE protos)
  foreach(proto ${ARG_PROTOS})
    string(REGEX REPLACE "\\.proto$" "" base ${proto})
    set(outputs ${out}/${base}.pb.h ${out}/${base}.pb.cc)
    set(args --cpp_out=${out})
    if(ARG_GRPC)
      list(APPEND outputs ${out}/${base}.grpc.pb.h ${out}/${base}.grpc.pb.cc)
      list(APPEND args --grpc_out=${out} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
    endif()
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc ${args} -I ${CMAKE_SOURCE_DIR}/proto ${CMAKE_SOURCE_DIR}/proto/${proto}
      DEPENDS ${protos}
      COMMENT "protoc ${proto}" VERBATIM)
    # Messages with messages, calls with calls: gRPC's headers, which cost most, are read once.
    set_source_files_properties(${out}/${base}.pb.cc PROPERTIES UNITY_GROUP messages)
    set_source_files_properties(${out}/${base}.grpc.pb.cc PROPERTIES UNITY_GROUP calls)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(${name} STATIC ${generated})
  # All generated sources, without compiling them: what clang-tidy needs.
  if(NOT TARGET mt_generated)
    add_custom_target(mt_generated)
  endif()
  add_custom_target(${name}_sources DEPENDS ${generated})
  add_dependencies(mt_generated ${name}_sources)
  # Generated code: no warnings, no lint; sanitizing it costs a minute and finds nothing of ours. Races
  # through it are ours.
  target_compile_options(${name} PRIVATE -w ${MT_PLAIN_OPTIONS})
  if(MT_SANITIZE MATCHES "address")
    target_compile_options(${name} PRIVATE -fno-sanitize=all)
  endif()
  set_target_properties(${name} PROPERTIES
    UNITY_BUILD_MODE GROUP UNITY_BUILD_UNIQUE_ID MT_JOINED_FILE UNITY_BUILD_CODE_BEFORE_INCLUDE "${MT_JOINED_PROTOS}")
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf ${ARG_DEPS})
  if(ARG_GRPC)
    target_link_libraries(${name} PUBLIC gRPC::grpc++)
  endif()
endfunction()
