abacus_program(abacus_link_delay SRCS testbed/link_delay_main.cc)
