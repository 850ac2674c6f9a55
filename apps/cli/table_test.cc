#include "apps/cli/table.h"

#include <gtest/gtest.h>

namespace abacus::apps {
namespace {

TEST(Table, ToStringAlignsTextLeftAndNumbersRight) {
  Table table({"placement", "elapsed s", "note"});
  table.AddRow({"client", "14.62", "12 a"});
  table.AddRow({"adaptive placement", "9.1", "-"});
  EXPECT_EQ(table.ToString(),
            "placement           elapsed s  note\n"
            "------------------  ---------  ----\n"
            "client                  14.62  12 a\n"
            "adaptive placement        9.1  -\n");
}

TEST(Table, ToStringTakesSignsUnitsAndGapsAmongNumbers) {
  Table table({"n"});
  for (const char* const cell : {"-1.5", "", "-", "1,024", "99.9 %", "+3", "2.5x"}) {
    table.AddRow({cell});
  }
  EXPECT_EQ(table.ToString(), "     n\n------\n  -1.5\n\n     -\n 1,024\n99.9 %\n    +3\n  2.5x\n");
}

TEST(Table, ToStringKeepsAColumnWithoutAnyNumberLeft) {
  Table table({"state", "x"});
  table.AddRow({"-", "1.2.a"});
  EXPECT_EQ(table.ToString(), "state  x\n-----  -----\n-      1.2.a\n");
}

TEST(Table, ToStringFillsMissingCells) {
  Table table({"a", "b"});
  table.AddRow({"x"});
  table.AddRow({});
  EXPECT_EQ(table.ToString(), "a  b\n-  -\nx\n\n");
}

TEST(Table, ToStringWithoutRowsHasTheHeaders) {
  EXPECT_EQ(Table({"a", "bc"}).ToString(), "a  bc\n-  --\n");
}

}  // namespace
}  // namespace abacus::apps
