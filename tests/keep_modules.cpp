// Linked into the executables of AddressSanitizer's build: Open MPI unloads its components at exit, and a leak in an unloaded module has no
// name that tests/lsan.supp could give.
extern "C" int dlclose(void*) { return 0; }
