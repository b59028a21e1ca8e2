#include "bundle/pipeline_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coreai/base/ascii.h"
#include "coreai/base/npy.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

BundleError sidecar_error(const fs::path& file, std::string what) {
  return BundleError(BundleFault::kMalformedSidecar, file.filename().string(), std::move(what), file.string(),
                     "Export the bundle again, or save the array with numpy.save in that form");
}

bool fits(const Shape& shape, const Shape& expected) {
  if (shape.rank() != expected.rank()) return false;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis)
    if (expected[axis] != kDynamic && expected[axis] != shape[axis]) return false;
  return true;
}

}  // namespace

NDArray read_sidecar(const fs::path& file, DType dtype, const Shape& shape) {
  NDArray array;
  std::error_code ignored;
  if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored)) throw sidecar_error(file, "no regular file");
  try {
    array = read_npy(file);
  } catch (const NotFoundError& e) {
    throw BundleError(BundleFault::kMissingAsset, file.filename().string(), e.problem(), file.string(),
                      "Export the bundle again: exporters go on when they cannot write this file");
  } catch (const IoError&) {
    throw;
  } catch (const Error& e) {
    throw sidecar_error(file, e.problem());
  }
  if (array.dtype() != dtype)
    throw sidecar_error(file,
                        fmt::format("the array has dtype {}, not {}", dtype_name(array.dtype()), dtype_name(dtype)));
  if (!fits(array.shape(), shape))
    throw sidecar_error(
        file, fmt::format("the array has shape [{}], not [{}]", array.shape().to_string(), shape.to_string()));
  return array;
}

namespace pipeline {

std::vector<std::string> asset_names(const fs::path& folder) {
  std::vector<std::string> portable, compiled;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path name = entry->path().filename();
    if (name.extension() == ".aimodel") portable.push_back(name.string());
    if (name.extension() == ".aimodelc") compiled.push_back(name.string());
  }
  std::sort(portable.begin(), portable.end());
  std::sort(compiled.begin(), compiled.end());
  portable.insert(portable.end(), compiled.begin(), compiled.end());
  return portable;
}

std::string role_of_file(std::string_view name) {
  std::string plain = lower_case(fs::path(name).stem().string());
  std::erase_if(plain, [](char c) { return c == '_' || c == '-'; });
  const auto has = [&](std::string_view part) { return plain.find(part) != std::string::npos; };
  const std::string half = has("half") ? "_half" : "";
  if (has("textencoder2")) return "text_encoder_2";
  if (has("textencoder")) return "text_encoder";
  if (has("vaedecoder")) return "vae_decoder" + half;
  if (has("vaeencoder")) return "vae_encoder" + half;
  if (has("unet")) return "unet";
  if (has("transformer") || has("mmdit")) return has("512") ? "transformer_512" : "transformer";
  return "";
}

BatchNormStatistics read_statistics(const fs::path& mean, const fs::path& variance) {
  BatchNormStatistics made;
  made.mean = read_sidecar(mean, DType::kF32, {kDynamic});
  if (made.mean.element_count() == 0) throw sidecar_error(mean, "the array has no values");
  made.variance = read_sidecar(variance, DType::kF32, made.mean.shape());
  for (const float value : made.mean.values<float>())
    if (!std::isfinite(value)) throw sidecar_error(mean, "the array has a value that is no finite number");
  for (const float value : made.variance.values<float>())
    if (!std::isfinite(value) || value < 0)
      throw sidecar_error(variance, fmt::format("the array has the value {}, no variance", value));
  return made;
}

}  // namespace pipeline
}  // namespace coreai
