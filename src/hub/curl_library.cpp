#include "hub/curl_library.hpp"

#include "base/shared_library.hpp"

namespace adze::hub {
namespace {

Result<CurlLibrary> load_curl() {
  ADZE_TRY(const SharedLibrary library, SharedLibrary::load({"libcurl.so.4", "libcurl.4.dylib"}, "libcurl4"));
  CurlLibrary curl;
  const bool bound =
      library.bind(curl.global_init, "curl_global_init") && library.bind(curl.easy_init, "curl_easy_init") &&
      library.bind(curl.easy_setopt, "curl_easy_setopt") && library.bind(curl.easy_perform, "curl_easy_perform") &&
      library.bind(curl.easy_getinfo, "curl_easy_getinfo") && library.bind(curl.easy_cleanup, "curl_easy_cleanup") &&
      library.bind(curl.easy_strerror, "curl_easy_strerror") && library.bind(curl.slist_append, "curl_slist_append") &&
      library.bind(curl.slist_free_all, "curl_slist_free_all");
  if (!bound || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return fail(ErrorCode::unsupported_feature, "the installed libcurl cannot be used", "install the package libcurl4");
  }
  return curl;
}

}  // namespace

const Result<CurlLibrary>& curl_library() {
  static const Result<CurlLibrary> loaded = load_curl();
  return loaded;
}

}  // namespace adze::hub
