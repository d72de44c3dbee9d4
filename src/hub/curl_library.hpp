// libcurl's functions, found at run time (shared_library.hpp says why). Thread-safe once loaded.
#pragma once

#include <curl/curl.h>

#include "base/result.hpp"

namespace adze::hub {

struct CurlLibrary {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

// Loaded and initialised on the first call. Errors: not_found with the package to install.
const Result<CurlLibrary>& curl_library();

}  // namespace adze::hub
