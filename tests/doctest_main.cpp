// The main of every test that has none of its own: in a library with doctest.cpp, so that the linker takes it only where needed.
#include <doctest.h>

int main(int argc, char** argv) { return doctest::Context(argc, argv).run(); }
