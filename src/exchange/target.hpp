// The folder that an export or an import makes: its plain name, what may stand there before, and what dead ones have left beside it. Removes nothing
// but the latter.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace quadrille {

// Absolute, without links, and without a slash at its end.
std::filesystem::path plain_name(const std::filesystem::path& folder);

// Throws Error{refused} unless an export may make the folder: it is missing or empty, or with `replace` holds a former export and nothing else; nor
// is it the working directory, which would go away under whoever stands there. Error{io_failed} where it cannot be listed.
void require_export_target(const std::filesystem::path& folder, bool replace);

// Throws Error{refused} unless an import may make step 0 in the directory: no step is there, or with `replace` none but step 0. Error{io_failed}
// where it cannot be listed.
void require_import_target(const std::filesystem::path& directory, bool replace);

// Removes what dead processes have left of this folder, half made; a sentence for each, also for what may be alive and so stays.
std::vector<std::string> remove_leftovers_of(const std::filesystem::path& folder);

}  // namespace quadrille
