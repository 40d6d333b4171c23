#include "config/yaml_reader.hpp"

#include "base/error.hpp"
#include "config/utf8.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace quadrille::input {

namespace {

// What makes a document unusable as a whole.
struct Unreadable {
    Place at;
    std::string sentence;
};

// The lines of a text, for the parser counts bytes and readers count characters.
class Lines {
  public:
    Lines(const std::string& text, int source) : text_(text), source_(source) {
        begins_.push_back(0);
        for (std::size_t i = 0; i < text.size(); ++i)
            if (text[i] == '\n') begins_.push_back(i + 1);
    }
    // Line and column are the parser's, from 0.
    Place place(int line, int column) const {
        if (source_ > 0) return {source_, 0, 0};
        if (line < 0 || static_cast<std::size_t>(line) >= begins_.size()) return {0, 0, 0};
        const std::size_t begin = begins_[static_cast<std::size_t>(line)];
        const std::size_t end = std::min(text_.size(), begin + static_cast<std::size_t>(std::max(column, 0)));
        if (begin != counted_.begin || end < counted_.end) counted_ = {begin, begin, 0};
        counted_.characters += characters(std::string_view(text_).substr(counted_.end, end - counted_.end));
        counted_.end = end;
        return {0, line + 1, 1 + counted_.characters};
    }
    Place place(const YAML::Mark& mark) const { return mark.is_null() ? Place{source_, 0, 0} : place(mark.line, mark.column); }
    Place place_of_byte(std::size_t byte) const {
        const auto after = std::upper_bound(begins_.begin(), begins_.end(), byte);
        const auto line = static_cast<std::size_t>(after - begins_.begin()) - 1;
        return place(static_cast<int>(line), static_cast<int>(byte - begins_[line]));
    }
    std::string_view from(const YAML::Mark& mark) const {
        if (mark.is_null() || static_cast<std::size_t>(mark.line) >= begins_.size()) return {};
        const std::size_t begin = begins_[static_cast<std::size_t>(mark.line)] + static_cast<std::size_t>(mark.column);
        return begin < text_.size() ? std::string_view(text_).substr(begin) : std::string_view();
    }
    // Whether this is an override whose list or mapping does not end in it.
    bool open_override() const {
        const std::size_t first = text_.find_first_not_of(' '), last = text_.find_last_not_of(' ');
        if (source_ == 0 || first == std::string::npos) return false;
        return (text_[first] == '{' && text_[last] != '}') || (text_[first] == '[' && text_[last] != ']');
    }
    // The first line after `line` (from 0), itself included, that is indented with a tab; -1 if it is not.
    bool begins_with_tab(int line) const {
        if (line < 0 || static_cast<std::size_t>(line) >= begins_.size()) return false;
        const std::size_t begin = begins_[static_cast<std::size_t>(line)];
        const std::size_t first = text_.find_first_not_of(' ', begin);
        return first != std::string::npos && text_[first] == '\t';
    }

  private:
    const std::string& text_;
    int source_;
    std::vector<std::size_t> begins_;
    // How far the last line asked for has been counted: places come in the text's order, and a text may be one line of megabytes.
    struct Counted { std::size_t begin, end; int characters; };
    mutable Counted counted_{0, 0, 0};
};

// Whether the list or mapping that begins here, in brackets, ends before the text does. What stands in quotes is passed over.
bool has_end(std::string_view flow) {
    int depth = 0;
    char quote = 0;
    for (const char c : flow) {
        if (quote != 0) quote = c == quote ? 0 : quote;
        else if (c == '"' || c == '\'') quote = c;
        else if (c == '{' || c == '[') ++depth;
        else if ((c == '}' || c == ']') && --depth <= 0) return true;
    }
    return false;
}

// Builds the tree from the parser's events.
class Builder : public YAML::EventHandler {
  public:
    explicit Builder(const Lines& lines) : lines_(lines) {}
    NodePtr root() const { return root_; }

    void OnDocumentStart(const YAML::Mark& mark) override { start_ = lines_.place(mark); }
    void OnDocumentEnd() override {}
    Place start() const { return start_; }

    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        // The parser does not say how it was written, but a file may well be called "null".
        const std::string_view written = lines_.from(mark);
        std::string text;
        for (const char* word : {"~", "null", "Null", "NULL"})
            if (written.starts_with(word)) text = word;
        scalar(mark, anchor, text, false);
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
        const bool plain = tag == "?" || tag.empty();
        const bool text = tag == "!" || tag == "tag:yaml.org,2002:str";
        if (!plain && !text) check_tag(mark, tag);
        if (const std::string_view written = lines_.from(mark); text && value.empty() && (written == "\"" || written == "'"))
            throw Unreadable{lines_.place(mark), "the text in quotes that begins here has no end"};
        std::string trimmed = value;
        if (plain) trimmed.erase(trimmed.find_last_not_of(" \t") + 1);  // the parser keeps a tab before a comment
        scalar(mark, anchor, trimmed, text);
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchors_.find(anchor);
        if (found == anchors_.end()) throw Unreadable{lines_.place(mark), "this alias has no anchor"};
        if (std::find(open_.begin(), open_.end(), found->second) != open_.end())
            throw Unreadable{lines_.place(mark), "this alias stands inside its own anchor, which has no end"};
        // Nodes are shared, but keys and values are copied.
        aliased_bytes_ += found->second->text.size();
        if (aliased_bytes_ > most_aliased_bytes)
            throw Unreadable{lines_.place(mark), fmt::format("the texts that aliases stand for have more than {} bytes in all", most_aliased_bytes)};
        if (expects_key()) {
            if (found->second->kind != Node::Kind::scalar)
                throw Unreadable{lines_.place(mark), "a key must be a word, found an alias"};
            keys_.back() = {found->second->text, lines_.place(mark), nullptr};
            has_key_.back() = true;
            return;
        }
        attach(found->second);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        open(mark, tag, anchor, Node::Kind::list);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
        open(mark, tag, anchor, Node::Kind::map);
    }
    void OnMapEnd() override { close(); }

  private:
    using Building = std::shared_ptr<Node>;

    bool expects_key() const { return !open_.empty() && open_.back()->kind == Node::Kind::map && !has_key_.back(); }

    void check_tag(const YAML::Mark& mark, const std::string& tag) const {
        const std::string core = "tag:yaml.org,2002:";
        for (const char* name : {"int", "float", "bool", "null", "seq", "map"})
            if (tag == core + name) return;
        throw Unreadable{lines_.place(mark), fmt::format("found the tag {}, which means nothing here", tag)};
    }

    void scalar(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& text, bool quoted) {
        auto node = std::make_shared<Node>();
        node->place = lines_.place(mark);
        node->text = text;
        node->quoted = quoted;
        if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
        if (!expects_key()) return attach(node);
        if (text == "<<" && !quoted)
            throw Unreadable{node->place, "merge keys (<<) are not taken; write the keys out, or give the whole value an anchor"};
        keys_.back() = {text, node->place, nullptr};
        has_key_.back() = true;
    }

    void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
        if (expects_key()) {  // what has no end looks like the key of a mapping that is yet to come
            const bool ends = has_end(lines_.from(mark));
            throw Unreadable{lines_.place(mark), ends ? "a key must be a word, found a list or a mapping"
                                                      : "the list or mapping in brackets that begins here has no end"};
        }
        if (tag != "?" && tag != "!" && !tag.empty()) check_tag(mark, tag);
        auto node = std::make_shared<Node>();
        node->kind = kind;
        node->place = lines_.place(mark);
        if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
        open_.push_back(node);
        keys_.push_back({});
        has_key_.push_back(false);
    }

    void close() {
        const Building node = open_.back();
        open_.pop_back();
        keys_.pop_back();
        has_key_.pop_back();
        attach(node);
    }

    void attach(const Building& node) {
        if (open_.empty()) {
            root_ = node;
        } else if (open_.back()->kind == Node::Kind::list) {
            open_.back()->items.push_back(node);
        } else {
            Entry entry = keys_.back();
            entry.value = node;
            // A value left out has the place of whatever follows it: its key is meant.
            if (node->kind == Node::Kind::scalar && node->text.empty() && !node->quoted) node->place = entry.place;
            open_.back()->entries.push_back(entry);
            has_key_.back() = false;
        }
    }

    static constexpr std::size_t most_aliased_bytes = 1 << 20;

    const Lines& lines_;
    std::size_t aliased_bytes_ = 0;
    NodePtr root_;
    Place start_;
    std::map<YAML::anchor_t, Building> anchors_;
    std::vector<Building> open_;  // the containers around the next event, outermost first
    std::vector<Entry> keys_;     // for each of them: the key that waits for its value,
    std::vector<bool> has_key_;   // if there is one
};

// Line ends of every kind become '\n', a byte order mark goes.
std::string normalized(const std::string& text) {
    std::string result;
    result.reserve(text.size());
    std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    for (; i < text.size(); ++i) {
        if (text[i] != '\r')
            result += text[i];
        else if (i + 1 == text.size() || text[i + 1] != '\n')
            result += '\n';
    }
    return result;
}

// Refuses bytes that the parser would replace, or take for the end of the file.
void check_characters(const std::string& text, const Lines& lines) {
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
        throw Unreadable{lines.place(0, 0), "the file is UTF-16, allowed: UTF-8"};
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const int length = utf8_length(text, i);
        if (length == 0)
            throw Unreadable{lines.place_of_byte(i),
                             fmt::format("found the byte 0x{:02X}, which is not UTF-8 (Latin-1?), allowed: UTF-8", byte)};
        if ((byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7F)
            throw Unreadable{lines.place_of_byte(i), fmt::format("found the control character 0x{:02X}, allowed: text", byte)};
        i += static_cast<std::size_t>(length);
    }
}

std::string parser_sentence(const YAML::ParserException& e, const Lines& lines) {
    if (!e.mark.is_null() && lines.begins_with_tab(e.mark.line))
        return fmt::format("the line is indented with a tab, YAML allows spaces only ({})", e.msg);
    const bool alias = e.msg.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR);
    return fmt::format("not YAML: {}{}", e.msg, alias ? "; a word that begins with * stands in quotes: [\"*.txt\"]" : "");
}

NodePtr read_document(const std::string& text, int source, const Lines& lines) {
    check_characters(text, lines);
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Builder builder(lines);
    if (!parser.HandleNextDocument(builder))
        throw Unreadable{{source, 0, 0}, source > 0 ? "found no value" : "the file is empty, allowed: a mapping of sections"};
    const NodePtr root = builder.root();
    Builder second(lines);
    if (parser.HandleNextDocument(second)) throw Unreadable{second.start(), "a second document begins here, allowed: one"};
    return root;
}

}  // namespace

bool Node::is_null() const {
    return kind == Kind::scalar && !quoted && (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL");
}

NodePtr read_yaml(const std::string& raw, int source, Problems& problems) {
    const std::string text = normalized(raw);
    const Lines lines(text, source);
    const char* no_end = "; the list or mapping has no end: put the whole override in quotes, since a shell parts it at blanks";
    const char* advice = lines.open_override() ? no_end : "";
    try {
        return read_document(text, source, lines);
    } catch (const Unreadable& e) {
        problems.add(e.at, "", e.sentence + advice);
    } catch (const YAML::ParserException& e) {
        problems.add(lines.place(e.mark), "", parser_sentence(e, lines) + advice);
    }
    return nullptr;
}

}  // namespace quadrille::input
