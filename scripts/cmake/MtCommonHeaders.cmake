# With MT_COMMON_HEADERS, what most files include is compiled once for all libraries and once for all
# tests: it takes a third of a build's time. cpu-debug does without, and joins no files, so that a file
# which forgets an include fails there.
#   mt_common_headers(TARGET KIND)   TARGET starts from the headers compiled for its kind: libraries, plain_libraries
#                                    (MtTargets) or tests
#   mt_no_common_headers(TARGET)     for a target with code generation options of its own
option(MT_COMMON_HEADERS "Compile what most files include once for all of them" OFF)
set(MT_COMMON_HEADER_LIST <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream>
    <functional> <limits> <map> <memory> <optional> <random> <set> <string> <string_view> <thread> <utility> <vector>
    <absl/status/statusor.h> <absl/synchronization/mutex.h> <fmt/format.h> <nlohmann/json.hpp>
    <megatrain/v1/job.pb.h> <megatrain/v1/types.pb.h>)

function(mt_declare_common_headers kind)
  file(WRITE ${CMAKE_BINARY_DIR}/gen/common_headers_${kind}.cc "int main() { return 0; }\n")
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS;OPTIONS" ${ARGN})
  if(kind STREQUAL tests)
    add_executable(mt_headers_${kind} ${CMAKE_BINARY_DIR}/gen/common_headers_${kind}.cc)
  else()
    add_library(mt_headers_${kind} STATIC ${CMAKE_BINARY_DIR}/gen/common_headers_${kind}.cc)
  endif()
  target_compile_options(mt_headers_${kind} PRIVATE ${ARG_OPTIONS} ${MT_WARNINGS})
  target_link_libraries(mt_headers_${kind} PRIVATE
    mt_types_proto absl::statusor absl::synchronization fmt::fmt nlohmann_json::nlohmann_json ${ARG_DEPS})
  target_precompile_headers(mt_headers_${kind} PRIVATE ${MT_COMMON_HEADER_LIST} ${ARG_HEADERS})
endfunction()

if(MT_COMMON_HEADERS)
  mt_declare_common_headers(libraries HEADERS <spdlog/spdlog.h> DEPS spdlog::spdlog)
  if(MT_PLAIN_OPTIONS)
    mt_declare_common_headers(plain_libraries HEADERS <spdlog/spdlog.h> DEPS spdlog::spdlog OPTIONS ${MT_PLAIN_OPTIONS})
  endif()
  if(MT_TESTS)
    mt_declare_common_headers(tests HEADERS <gmock/gmock.h> <gtest/gtest.h> DEPS GTest::gmock OPTIONS ${MT_TEST_OPTIONS})
  endif()
endif()

function(mt_common_headers target kind)
  if(MT_COMMON_HEADERS)
    target_precompile_headers(${target} REUSE_FROM mt_headers_${kind})
  endif()
endfunction()

function(mt_no_common_headers target)
  set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
endfunction()
