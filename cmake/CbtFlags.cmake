# Flags for our own files only: they are linked as a build interface and leave no trace in the
# exported targets.
add_library(cbt_private_flags INTERFACE)
target_compile_features(cbt_private_flags INTERFACE cxx_std_20)
target_compile_options(cbt_private_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion $<$<BOOL:${CBT_WERROR}>:-Werror>)
if(CBT_SANITIZE)
  # Everything of ours, tests included; a frame pointer for readable reports.
  target_compile_options(cbt_private_flags INTERFACE
    -fsanitize=${CBT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(cbt_private_flags INTERFACE -fsanitize=${CBT_SANITIZE})
endif()
