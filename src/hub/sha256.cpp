#include "hub/sha256.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/shared_library.hpp"

namespace adze::hub {
namespace {

struct Crypto {
  decltype(&EVP_MD_CTX_new) context_new = nullptr;
  decltype(&EVP_MD_CTX_free) context_free = nullptr;
  decltype(&EVP_sha256) sha256 = nullptr;
  decltype(&EVP_DigestInit_ex) init = nullptr;
  decltype(&EVP_DigestUpdate) update = nullptr;
  decltype(&EVP_DigestFinal_ex) finish = nullptr;
};

Result<Crypto> load_crypto() {
  ADZE_TRY(const SharedLibrary library, SharedLibrary::load({"libcrypto.so.3", "libcrypto.3.dylib"}, "libssl3"));
  Crypto crypto;
  if (library.bind(crypto.context_new, "EVP_MD_CTX_new") && library.bind(crypto.context_free, "EVP_MD_CTX_free") &&
      library.bind(crypto.sha256, "EVP_sha256") && library.bind(crypto.init, "EVP_DigestInit_ex") &&
      library.bind(crypto.update, "EVP_DigestUpdate") && library.bind(crypto.finish, "EVP_DigestFinal_ex")) {
    return crypto;
  }
  return fail(ErrorCode::unsupported_feature, "the installed libcrypto is not OpenSSL 3",
              "install the package libssl3");
}

const Result<Crypto>& crypto() {
  static const Result<Crypto> loaded = load_crypto();
  return loaded;
}

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp;
};

void Sha256::Free::operator()(Context* context) const {
  crypto()->context_free(context->evp);
  delete context;
}

Result<Sha256> Sha256::create() {
  if (!crypto()) return tl::unexpected(crypto().error());
  Sha256 hash(new Context{crypto()->context_new()});
  hash.reset();
  return hash;
}

void Sha256::update(std::span<const std::byte> bytes) {
  const int ok = crypto()->update(context_->evp, bytes.data(), bytes.size());
  ADZE_CHECK(ok == 1, "EVP_DigestUpdate");
}

void Sha256::reset() {
  const int ok = crypto()->init(context_->evp, crypto()->sha256(), nullptr);
  ADZE_CHECK(ok == 1, "EVP_DigestInit_ex");
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  const int ok = crypto()->finish(context_->evp, digest.data(), nullptr);
  ADZE_CHECK(ok == 1, "EVP_DigestFinal_ex");
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

Result<std::string> sha256_of_file(const std::filesystem::path& path, const ProgressCallback& progress) {
  ADZE_TRY(Sha256 hash, Sha256::create());
  ADZE_TRY(const MappedFile file, MappedFile::open(path));
  const std::string name = path.filename().string();
  const auto bytes = file.bytes();
  constexpr std::size_t kStep = std::size_t{4} << 20;
  for (std::size_t at = 0; at < bytes.size(); at += kStep) {
    if (progress && !progress({Stage::verifying, name, at, bytes.size()})) {
      return fail(ErrorCode::cancelled, fmt::format("the check of '{}' was cancelled", name));
    }
    hash.update(bytes.subspan(at, std::min(kStep, bytes.size() - at)));
  }
  return hash.hex();
}

Result<std::string> parse_sha256(std::string_view text) {
  std::string digest(text);
  std::transform(digest.begin(), digest.end(), digest.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != digest.npos) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a SHA-256", text),
                "give its 64 hexadecimal digits");
  }
  return digest;
}

}  // namespace adze::hub
