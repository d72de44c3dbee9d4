#include "cli/line_editor.hpp"

#include <histedit.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "cli/console.hpp"

namespace adze::cli {

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;

  static char* show_prompt(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<Impl*>(self)->prompt.data();
  }
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  // The editor counts characters by the locale: one that is not UTF-8 would cut them apart.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  impl_->editor = el_init("adze", stdin, stderr, stderr);
  impl_->history = history_init();
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, 1000);
  el_set(impl_->editor, EL_CLIENTDATA, impl_.get());
  el_set(impl_->editor, EL_PROMPT, &Impl::show_prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_SIGNAL, 0);
  el_set(impl_->editor, EL_HIST, history, impl_->history);
}

LineEditor::~LineEditor() {
  history_end(impl_->history);
  el_end(impl_->editor);
}

LineEditor::Outcome LineEditor::read(std::string_view prompt, std::string& line) {
  impl_->prompt = prompt;
  int count = 0;
  const char* text = el_gets(impl_->editor, &count);
  if (interrupted()) {
    clear_interrupt();
    el_reset(impl_->editor);
    std::fputc('\n', stderr);
    return Outcome::interrupted;
  }
  if (text == nullptr || count <= 0) return Outcome::end;
  line.assign(text, static_cast<std::size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return Outcome::line;
}

void LineEditor::remember(const std::string& line) {
  HistEvent event;
  history(impl_->history, &event, H_ENTER, line.c_str());
}

}  // namespace adze::cli
