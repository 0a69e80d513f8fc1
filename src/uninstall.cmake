# Removes what `cmake --install` put in place, by the list it left behind, and the folders that it made if they are empty.
# Run as: cmake -DMANIFEST=<build>/install_manifest.txt -DFOLDERS=<build>/install_folders.txt -P uninstall.cmake
if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "nothing to uninstall: there is no ${MANIFEST}")
endif()
file(STRINGS "${MANIFEST}" installed)
foreach(path IN LISTS installed)
  set(path "$ENV{DESTDIR}${path}")
  if(EXISTS "${path}" OR IS_SYMLINK "${path}")
    message(STATUS "Removing ${path}")
    file(REMOVE "${path}")
  endif()
endforeach()
file(STRINGS "${FOLDERS}" folders)
list(SORT folders ORDER DESCENDING) # a folder follows those in it
foreach(folder IN LISTS folders)
  execute_process(COMMAND rmdir "$ENV{DESTDIR}${folder}" ERROR_QUIET) # refuses if something else is in it
endforeach()
file(REMOVE "${FOLDERS}")
