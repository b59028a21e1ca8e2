// NumPy array files (.npy, versions 1 to 3). Source: NumPy's format description, numpy.lib.format.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "coreai/base/ndarray.h"

namespace coreai {

// Dtypes: ?, i1..i8, u1..u8, f2, f4, f8, c8, c16, little-endian; C order only (a Fortran-ordered array of one axis or
// fewer is the same). Throws NotFoundError, IoError, MalformedError (magic, version, header, length), UnsupportedError
// (big-endian, other dtypes, Fortran order).
NDArray read_npy(const std::filesystem::path& path);
// The same from memory; `where` names the source in errors.
NDArray parse_npy(std::span<const std::byte> bytes, const std::string& where);

// Version 1, written atomically. bf16 and the 8-bit floats are written as f32 (exact), sub-byte integers as i1 or u1:
// NumPy has no such types. Throws IoError.
void write_npy(const std::filesystem::path& path, const NDArray& array);
std::vector<std::byte> format_npy(const NDArray& array);

}  // namespace coreai
