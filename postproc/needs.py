"""What a script says where this Python is without the packages that it needs. Needs none itself."""
import sys


def tell(tool, doc, error):
    """Prints what is missing and where it may be, and the script's help if that was asked for; returns the exit code."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(doc.strip() + "\n")
    packages = "python3-h5py python3-matplotlib python3-yaml"
    print(f"{tool}: {error} for {sys.executable}; on Debian: apt-get install {packages}, which /usr/bin/python3 then has", file=sys.stderr)
    return 2
