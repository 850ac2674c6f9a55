#ifndef ABACUS_APPS_ABACUS_INTERRUPT_H_
#define ABACUS_APPS_ABACUS_INTERRUPT_H_

namespace abacus::apps {

// From now on the first SIGINT or SIGTERM only makes Interrupted() true, so that a command can end
// in order; the second ends it at once.
void EndInOrder();
bool Interrupted();
// Waits until something can be read from `fd`, its end included; false: Interrupted(), also where
// that happens just before it would wait. Blocking.
bool AwaitInput(int fd);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_INTERRUPT_H_
