# The Rust crate of bridge/ as the imported static library coreai::bridge. Cargo runs only when a source changed, and
# needs no network once the crates that Cargo.lock names are in its cache.
set(COREAI_CARGO "" CACHE FILEPATH "The cargo to build the bridge with; empty = the first in PATH or ~/.cargo/bin")
set(COREAI_CARGO_TARGET_DIR "${CMAKE_BINARY_DIR}/bridge" CACHE PATH "Where cargo builds; may be shared by presets")

if(COREAI_CARGO)
  set(coreai_cargo_program ${COREAI_CARGO} CACHE INTERNAL "")
else()
  find_program(coreai_cargo_program cargo HINTS $ENV{HOME}/.cargo/bin)
endif()
if(NOT coreai_cargo_program)
  message(FATAL_ERROR "No cargo found. Install Rust 1.85 or newer (Debian 12: apt install cargo-web rustc-web) "
    "or set COREAI_CARGO.")
endif()

set(coreai_bridge_dir ${PROJECT_SOURCE_DIR}/bridge)
set(COREAI_BRIDGE_LIBRARY ${COREAI_CARGO_TARGET_DIR}/release/libcoreai_bridge.a)
# Rust's compiler flags of the environment would change the artefact behind CMake's back.
add_custom_command(OUTPUT ${COREAI_BRIDGE_LIBRARY}
  COMMAND ${CMAKE_COMMAND} -E env --unset=RUSTFLAGS ${coreai_cargo_program} build --release --locked --quiet
          --manifest-path ${coreai_bridge_dir}/Cargo.toml --target-dir ${COREAI_CARGO_TARGET_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${COREAI_BRIDGE_LIBRARY}
  DEPENDS ${coreai_bridge_dir}/Cargo.toml ${coreai_bridge_dir}/Cargo.lock ${coreai_bridge_dir}/src/bpe.rs
          ${coreai_bridge_dir}/src/bpe_file.rs ${coreai_bridge_dir}/src/guard.rs ${coreai_bridge_dir}/src/lib.rs
          ${coreai_bridge_dir}/src/python.rs ${coreai_bridge_dir}/src/template.rs ${coreai_bridge_dir}/src/tokenizer.rs
          ${coreai_bridge_dir}/src/vocabulary.rs
  COMMENT "Building the Rust bridge" VERBATIM)
add_custom_target(coreai_bridge_build DEPENDS ${COREAI_BRIDGE_LIBRARY})

add_library(coreai::bridge STATIC IMPORTED GLOBAL)
set_target_properties(coreai::bridge PROPERTIES IMPORTED_LOCATION ${COREAI_BRIDGE_LIBRARY}
  INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
add_dependencies(coreai::bridge coreai_bridge_build)

# The crate's own tests: our reading of a tokenizer against that of the `tokenizers` crate.
function(coreai_bridge_test)
  add_test(NAME bridge_test
    COMMAND ${CMAKE_COMMAND} -E env --unset=RUSTFLAGS ${coreai_cargo_program} test --release --locked --quiet
            --manifest-path ${PROJECT_SOURCE_DIR}/bridge/Cargo.toml --target-dir ${COREAI_CARGO_TARGET_DIR})
  set_tests_properties(bridge_test PROPERTIES TIMEOUT 900)
endfunction()
