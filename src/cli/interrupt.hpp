// Ctrl-C as a flag that work looks at, and as a file descriptor that waiting can include.
#pragma once

namespace adze::cli {

// From here on the first Ctrl-C sets the flag, and a second one before the flag is cleared ends the program.
void watch_interrupts();
bool interrupted();
// Also drops what was typed and not yet read, as a terminal does on Ctrl-C.
void clear_interrupt();

// Readable from an interrupt until clear_interrupt(), -1 before watch_interrupts(). A signal may reach any thread, so a
// blocked read of this one need not end: wait for both instead.
int interrupt_descriptor();

}  // namespace adze::cli
