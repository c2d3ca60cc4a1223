# Flags for our own files only: linked as a build interface, so that they leave no trace in the
# exported targets.
add_library(cbt_private_flags INTERFACE)
target_compile_features(cbt_private_flags INTERFACE cxx_std_20)
target_compile_options(cbt_private_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion $<$<BOOL:${CBT_WERROR}>:-Werror>)
if(CBT_SANITIZE)
  # All our code, with a frame pointer for readable reports; targets with the property CBT_PLAIN are
  # only linked.
  target_compile_options(cbt_private_flags INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:CBT_PLAIN>>>:-fsanitize=${CBT_SANITIZE}>
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:CBT_PLAIN>>>:-fno-sanitize-recover=all>
    -fno-omit-frame-pointer)
  target_link_options(cbt_private_flags INTERFACE -fsanitize=${CBT_SANITIZE})
endif()
