#pragma once

#include "bundle/metadata.h"
#include "coreai/bundle/vision_config.h"

namespace coreai::metadata {

// Throws BundleError (kMissingField, kMalformedMetadata, kInconsistent).
VisionConfig read_vision(const Fields& fields);

}  // namespace coreai::metadata
