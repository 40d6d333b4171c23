#include "config/rules.hpp"

namespace quadrille::input {

bool Rules::expect(std::initializer_list<const char*> keys, bool ok, const std::string& sentence) {
    if (ok) return true;
    const char* subject = nullptr;
    for (const char* key : keys) {
        if (settings_.broken(key)) return true;
        if (subject == nullptr && settings_.written(key)) subject = key;
    }
    if (subject == nullptr) subject = *keys.begin();
    problems_.add(settings_.place(subject), subject, sentence);
    return false;
}

}  // namespace quadrille::input
