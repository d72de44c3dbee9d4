// The cache that the hub's own Python library keeps (models--ORG--REPO/snapshots/COMMIT/FILE): what is there already
// need not be fetched. Read only.
#pragma once

#include <filesystem>
#include <optional>

#include "hub/source.hpp"
#include "hub/store.hpp"

namespace adze::hub {

// $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_directory(Lookup lookup);

// The file in the snapshot that refs/main names, else in the newest snapshot that has it.
std::optional<std::filesystem::path> find_in_hub_cache(const std::filesystem::path& cache, const HubFile& file);

}  // namespace adze::hub
