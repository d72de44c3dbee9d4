# nlohmann/json is headers anyway.
if(NOT TARGET nlohmann_json::nlohmann_json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
endif()
set(nlohmann_json_FOUND TRUE)
