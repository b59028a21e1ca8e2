// Assets for the tables of tests/fixtures/op_table: files of recorded calls whose cases also say what program to run.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace coreai::testing_support {

// Writes an asset with one function per case of `table`, named as the case. The key "program" of a case is
//   {"inputs": [TYPE...], "steps": [STEP...], "outputs": [VALUE...]}
// where values are numbered: the inputs first, then the results of each step. A step is
//   ["const", TYPE, HEX]  or  [OPERATION as on disk, [VALUE...], [TYPE of each result...], {attribute: case}, REGION?]
// and a region is a program whose inputs are its block's arguments and whose outputs it yields.
// A type is "2x?xf32", "2x3xf32 sparse 4" (stored elements) or "image 24 4 6" (code, height, width).
// Throws Error when the file or a program is not legal.
void write_table_asset(const std::filesystem::path& table, const std::filesystem::path& asset);
// The same for a list of objects with "function" and "program".
void write_programs(const nlohmann::json& cases, const std::filesystem::path& asset);

}  // namespace coreai::testing_support
