# Writes OUTPUT, a header that names the commit of the checkout SOURCE: its full hash, "-dirty" appended where tracked files
# differ, or "unknown" where SOURCE is not the top of a git checkout (a release's archive, also inside another repository).
# Run at each build; touches the header only when the answer changed.
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(top "${top}" REALPATH)
  get_filename_component(here "${SOURCE}" REALPATH)
  if(top STREQUAL here)
    execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty --abbrev=40 --exclude=* WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND answer)
      set(commit ${answer})
    endif()
  endif()
endif()
set(text "inline constexpr char baked_git_commit[] = \"${commit}\";\n")
set(former "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} former)
endif()
if(NOT text STREQUAL former)
  file(WRITE ${OUTPUT} "${text}")
endif()
