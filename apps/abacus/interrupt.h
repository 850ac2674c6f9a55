#ifndef ABACUS_APPS_ABACUS_INTERRUPT_H_
#define ABACUS_APPS_ABACUS_INTERRUPT_H_

namespace abacus::apps {

// From now on the first SIGINT or SIGTERM only makes Interrupted() true, so that a command can end
// in order; the second ends it at once.
void EndInOrder();
bool Interrupted();

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_INTERRUPT_H_
