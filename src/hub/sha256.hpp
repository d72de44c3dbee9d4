// SHA-256 as bytes arrive, by OpenSSL (its SHA extensions make it as fast as a disk). Not thread-safe per object.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hub/progress.hpp"

namespace adze::hub {

class Sha256 {
 public:
  // Errors: not_found when libcrypto is not installed.
  static Result<Sha256> create();
  void update(std::span<const std::byte> bytes);
  void reset();
  std::string hex();  // 64 lower-case digits; afterwards only reset() is of use

 private:
  struct Context;
  struct Free {
    void operator()(Context* context) const;
  };
  explicit Sha256(Context* context) : context_(context) {}
  std::unique_ptr<Context, Free> context_;
};

// Reports Stage::verifying. Errors: those of opening and reading the file, cancelled.
Result<std::string> sha256_of_file(const std::filesystem::path& path, const ProgressCallback& progress);

// 64 hexadecimal digits, in lower case; nothing else passes. Errors: invalid_argument.
Result<std::string> parse_sha256(std::string_view text);

}  // namespace adze::hub
