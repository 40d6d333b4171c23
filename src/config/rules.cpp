#include "config/rules.hpp"

namespace quadrille::input {

bool Rules::expect(std::initializer_list<const char*> keys, bool ok, const std::string& sentence) {
    if (ok) return true;
    const char* subject = nullptr;
    for (const char* key : keys) {
        if (settings_.broken(key)) return true;
        if (!settings_.written(key)) continue;
        const bool newer = subject != nullptr && settings_.place(key).source > 0 && settings_.place(subject).source == 0;
        if (subject == nullptr || newer) subject = key;
    }
    if (subject == nullptr) subject = *keys.begin();
    problems_.add(settings_.place(subject), subject, sentence);
    return false;
}

}  // namespace quadrille::input
