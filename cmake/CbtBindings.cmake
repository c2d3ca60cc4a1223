# The sources of bindings/, which their users' own tools build against the installed library: modules
# of Go and crates of Rust as folders that may be read-only, the Python package as what pip calls a
# source distribution. `cmake --install TREE --component bindings` installs nothing else.
set(cbt_bindings_dir ${CMAKE_INSTALL_DATADIR}/cbt/bindings)
set(cbt_bindings_source ${PROJECT_SOURCE_DIR}/bindings)

install(DIRECTORY ${cbt_bindings_source}/go DESTINATION ${cbt_bindings_dir} COMPONENT bindings
        PATTERN "*_test.go" EXCLUDE)
install(DIRECTORY ${cbt_bindings_source}/rust DESTINATION ${cbt_bindings_dir} COMPONENT bindings
        PATTERN target EXCLUDE PATTERN tests EXCLUDE PATTERN bindgen.sh EXCLUDE)

# The same bytes from the same sources: packages of several architectures share the file.
set(name cbt-${PROJECT_VERSION})
set(stage ${PROJECT_BINARY_DIR}/package/python)
install(CODE "
  file(REMOVE_RECURSE \"${stage}\")
  file(COPY \"${cbt_bindings_source}/python/\" DESTINATION \"${stage}/${name}\"
       PATTERN build EXCLUDE PATTERN *.egg-info EXCLUDE PATTERN *.so EXCLUDE PATTERN __pycache__ EXCLUDE)
  file(WRITE \"${stage}/${name}/PKG-INFO\" \"Metadata-Version: 2.1\\nName: cbt\\nVersion: ${PROJECT_VERSION}\\n\")
  file(GLOB_RECURSE files RELATIVE \"${stage}\" \"${stage}/${name}/*\")
  list(SORT files)
  execute_process(COMMAND \"${CMAKE_COMMAND}\" -E tar cf \"${name}.tar\" --format=gnutar --mtime=2000-01-01 \${files}
                  WORKING_DIRECTORY \"${stage}\" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9nf \"${name}.tar\" WORKING_DIRECTORY \"${stage}\" COMMAND_ERROR_IS_FATAL ANY)
" COMPONENT bindings)
install(FILES ${stage}/${name}.tar.gz DESTINATION ${cbt_bindings_dir} COMPONENT bindings)
