# xxHash as a header; nothing else is asked for through pkg-config in a cross build.
set(PkgConfig_FOUND TRUE)
function(pkg_check_modules prefix)
  if(NOT TARGET PkgConfig::${prefix})
    add_library(PkgConfig::${prefix} INTERFACE IMPORTED GLOBAL)
    target_compile_definitions(PkgConfig::${prefix} INTERFACE XXH_INLINE_ALL)
  endif()
endfunction()
