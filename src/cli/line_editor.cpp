#include "cli/line_editor.hpp"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <optional>

#include "base/shared_library.hpp"
#include "cli/interrupt.hpp"

namespace adze::cli {
namespace {

// The functions of libedit that we call, under their own names.
struct Libedit {
  decltype(&::el_init) el_init;
  decltype(&::el_end) el_end;
  decltype(&::el_set) el_set;
  decltype(&::el_gets) el_gets;
  decltype(&::el_reset) el_reset;
  decltype(&::history_init) history_init;
  decltype(&::history_end) history_end;
  decltype(&::history) history;
};

std::optional<Libedit> load_libedit() {
  const auto library = SharedLibrary::load({"libedit.so.2", "libedit.so.0"}, "libedit2");
  Libedit l{};
  if (!library || !library->bind(l.el_init, "el_init") || !library->bind(l.el_end, "el_end") ||
      !library->bind(l.el_set, "el_set") || !library->bind(l.el_gets, "el_gets") ||
      !library->bind(l.el_reset, "el_reset") || !library->bind(l.history_init, "history_init") ||
      !library->bind(l.history_end, "history_end") || !library->bind(l.history, "history")) {
    return std::nullopt;
  }
  return l;
}

// One character of the terminal for the editor, 0 at the end, -1 for an interrupt. The editor's own reader takes an
// interrupted read for an accident and reads on.
int read_character(EditLine* /*editor*/, wchar_t* character) {
  std::mbstate_t state{};
  for (;;) {
    std::array<pollfd, 2> sources{{{STDIN_FILENO, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}}};
    if (::poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) return -1;
    if (interrupted()) return -1;
    if (sources[0].revents == 0) continue;
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const std::size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == static_cast<std::size_t>(-2)) continue;  // a part of a character
    if (length != static_cast<std::size_t>(-1)) return 1;
    state = {};  // not UTF-8: dropped
  }
}

}  // namespace

struct LineEditor::Impl {
  std::optional<Libedit> edit = load_libedit();
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;

  // libedit's prompt function is given the editor only, and there is one terminal.
  static inline Impl* shown = nullptr;
  static char* show_prompt(EditLine*) { return shown->prompt.data(); }

  // What is left without the library: the terminal's own line discipline.
  Outcome read_plain(std::string& line) const {
    std::fputs(prompt.c_str(), stderr);
    std::fflush(stderr);
    line.clear();
    for (int c = std::getc(stdin); c != '\n'; c = std::getc(stdin)) {
      if (c == EOF) {
        const bool was_interrupted = interrupted();
        clear_interrupt();
        std::clearerr(stdin);
        return was_interrupted ? Outcome::interrupted : line.empty() ? Outcome::end : Outcome::line;
      }
      line.push_back(static_cast<char>(c));
    }
    return Outcome::line;
  }
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  // The editor counts characters by the locale: one that is not UTF-8 would cut them apart.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  if (!impl_->edit) return;
  const Libedit& edit = *impl_->edit;
  Impl::shown = impl_.get();
  impl_->editor = edit.el_init("adze", stdin, stderr, stderr);
  impl_->history = edit.history_init();
  HistEvent event;
  edit.history(impl_->history, &event, H_SETSIZE, 1000);
  edit.el_set(impl_->editor, EL_PROMPT, &Impl::show_prompt);
  edit.el_set(impl_->editor, EL_EDITOR, "emacs");
  edit.el_set(impl_->editor, EL_SIGNAL, 0);
  edit.el_set(impl_->editor, EL_GETCFN, &read_character);
  edit.el_set(impl_->editor, EL_HIST, edit.history, impl_->history);
  // On Ctrl-C a terminal drops what was written and not yet shown, after it has sent the signal: what the program says
  // in answer, the next prompt included, could vanish (5 times in 60). Neither mode of the editor shall do that.
  edit.el_set(impl_->editor, EL_SETTY, "-d", "+noflsh", nullptr);
  edit.el_set(impl_->editor, EL_SETTY, "-x", "+noflsh", nullptr);
}

LineEditor::~LineEditor() {
  if (!impl_->edit) return;
  impl_->edit->history_end(impl_->history);
  impl_->edit->el_end(impl_->editor);
}

LineEditor::Outcome LineEditor::read(std::string_view prompt, std::string& line) {
  impl_->prompt = prompt;
  if (!impl_->edit) return impl_->read_plain(line);
  // Before the prompt, not with the first key after it: what is typed at the sight of the prompt is for the editor.
  impl_->edit->el_set(impl_->editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* text = impl_->edit->el_gets(impl_->editor, &count);
  if (interrupted()) {
    clear_interrupt();
    impl_->edit->el_reset(impl_->editor);
    std::fputc('\n', stderr);
    return Outcome::interrupted;
  }
  if (text == nullptr || count <= 0) return Outcome::end;
  line.assign(text, static_cast<std::size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return Outcome::line;
}

void LineEditor::remember(const std::string& line) {
  if (!impl_->edit) return;
  HistEvent event;
  impl_->edit->history(impl_->history, &event, H_ENTER, line.c_str());
}

}  // namespace adze::cli
