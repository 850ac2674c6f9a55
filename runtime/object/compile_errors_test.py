#!/usr/bin/env python3
"""Mistakes in classes of mobile objects: the compiler must refuse each, with a message of ours.

    compile_errors_test.py COMPILER [FLAG]...
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# Read once for all programs, as a precompiled header.
HEADERS = """
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include "runtime/object/mobile_object.h"
"""

PROGRAM = """
using namespace abacus::runtime;

struct Sendable {{ int x = 0; ABACUS_FIELDS(x) }};
struct Unsendable {{ int x = 0; }};
struct WithView {{ std::string_view text; ABACUS_FIELDS(text) }};

class Object : public {base} {{
 public:
  {members}
  void Checkpoint(CheckpointWriter&) const {override} {{}}
  absl::Status Restore(CheckpointReader&) {override} {{ return absl::OkStatus(); }}
  ABACUS_OBJECT(Object, "test.Object", 1, {methods})
}};

void Use(ObjectTypes& types, const Ref<Object>& ref) {{
  types.Add<Object>();
  {use};
}}
"""


def program(members, use="(void)ref->Method()", methods="Method", base="MobileObject"):
    override = "override" if base == "MobileObject" else ""
    return PROGRAM.format(members=members, use=use, methods=methods, base=base, override=override)


def method(parameters="", result="absl::Status", qualifiers=""):
    return f"{result} Method({parameters}) {qualifiers};"


GOOD = {
    "every kind of parameter and result": program(
        """absl::Status Method() const;
        absl::StatusOr<std::vector<Sendable>> Take(int a, const std::string& b, Block c,
                                                   std::string_view d, Ref<Object> e);
        absl::Status Init(int start);""",
        use="""(void)ref->Take(1, "b", Block(), std::string("d"), ref); (void)ref->Method();
        (void)ref.Fork<&Object::Take>(1, "b", Block(), "d", ref);
        internal::EncodeInit<Object>(1)""", methods="Method, Take"),
    "as many methods as the macro takes": program(
        "".join(f"absl::Status M{i}();" for i in range(26)), use="(void)ref->M25()",
        methods=", ".join(f"M{i}" for i in range(26))),
}

# What is wrong -> (program, what the message says).
BAD = {
    "pointer parameter": (
        program(method("char* p"), use="(void)ref->Method(nullptr)"), "parameter is a pointer"),
    "pointer behind a reference": (
        program(method("const int* const& p"), use="(void)ref->Method(nullptr)"),
        "parameter is a pointer"),
    "reference to be written through": (
        program(method("std::string& out"), use="std::string s; (void)ref->Method(s)"),
        "reference to be written through"),
    "rvalue reference": (
        program(method("std::string&& s"), use="(void)ref->Method(std::string())"),
        "is an rvalue reference"),
    "struct without its fields listed": (
        program(method("Unsendable u"), use="(void)ref->Method(Unsendable())"),
        "cannot be sent to another node"),
    "function": (
        program(method("std::function<void()> f"), use="(void)ref->Method([] {})"),
        "cannot be sent to another node"),
    "owner of something of this process": (
        program(method("std::unique_ptr<int> p"), use="(void)ref->Method(nullptr)"),
        "cannot be sent to another node"),
    "pointers inside of a vector": (
        program(method("std::vector<const char*> v"), use="(void)ref->Method({})"),
        "cannot be sent to another node"),
    "result that cannot be sent": (
        program(method(result="absl::StatusOr<std::unordered_map<int, int>>")),
        "cannot be sent to another node"),
    "result without a status": (
        program(method(result="int")), "must return absl::Status or absl::StatusOr<T>"),
    "no result": (
        program(method(result="void")), "must return absl::Status or absl::StatusOr<T>"),
    "result that is a view": (
        program(method(result="absl::StatusOr<std::string_view>")), "returns a view"),
    "result with a view inside": (
        program(method(result="absl::StatusOr<std::vector<WithView>>")), "returns a view"),
    "overloaded method": (
        program(method() + method("int")), "lists Method, which is not one method"),
    "method that is not there": (
        program(""), "lists Method, which is not one method"),
    "static method": (
        program("static absl::Status Method();"), "not a plain member function"),
    "noexcept method": (
        program(method(qualifiers="noexcept")), "not a plain member function"),
    "ref-qualified method": (
        program(method(qualifiers="&")), "not a plain member function"),
    "too few arguments": (
        program(method("int")), "the arguments do not fit the method's parameters"),
    "too many arguments": (
        program(method("int"), use="(void)ref->Method(1, 2)"),
        "the arguments do not fit the method's parameters"),
    "argument of another type": (
        program(method("int"), use='(void)ref->Method("text")'),
        "the arguments do not fit the method's parameters"),
    "fork of a method that takes views inside of values": (
        program(method("std::vector<std::string_view> v"),
                use="(void)ref.Fork<&Object::Method>(std::vector<std::string_view>())"),
        "cannot be forked"),
    "arguments that Init does not take": (
        program(method() + "absl::Status Init(int);", use="internal::EncodeInit<Object>()"),
        "do not fit the parameters of Init"),
    "arguments without an Init": (
        program(method(), use="internal::EncodeInit<Object>(1)"),
        "has no Init to take these arguments"),
    "Init with a result": (
        program(method() + "absl::StatusOr<int> Init();"), "Init must return absl::Status"),
    "class that is no mobile object": (
        program(method(), base="Sendable"), "derive from MobileObject"),
}


def compile_program(header, source):
    """(exit status, messages) of the compiler for `source` behind `header`."""
    done = subprocess.run([*sys.argv[1:], "-fsyntax-only", "-include", header, "-x", "c++", "-"],
                          input=source, text=True, capture_output=True, check=False)
    return done.returncode, done.stderr


class CompileErrorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sources = [*GOOD.values(), *(source for source, _ in BAD.values())]
        with tempfile.TemporaryDirectory() as folder, \
                concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            header = Path(folder, "headers.h")
            header.write_text(HEADERS, encoding="utf-8")
            subprocess.run([*sys.argv[1:], "-x", "c++-header", header, "-o", f"{header}.gch"],
                           check=True)
            results = pool.map(lambda source: compile_program(header, source), sources)
            cls.results = dict(zip(sources, results))

    def test_what_is_right_compiles(self):
        for name, source in GOOD.items():
            with self.subTest(name):
                status, messages = self.results[source]
                self.assertEqual(status, 0, messages)

    def test_what_is_wrong_is_refused_with_our_message(self):
        for name, (source, message) in BAD.items():
            with self.subTest(name):
                status, messages = self.results[source]
                self.assertNotEqual(status, 0, "it compiles")
                ours = [line for line in messages.splitlines() if "abacus: " in line]
                self.assertTrue(any(message in line for line in ours),
                                f"{message!r} is not said:\n{messages[:3000]}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1])
