"""Builds PufferLib's C CartPole from the source package, without torch: python build_pufferlib.py FOLDER

Its setup.py imports torch, downloads other libraries and compiles some fifty environments before anything can be
used. Here pip fetches the source package; the module below answers for torch and keeps the sources; then the one
environment is compiled with PufferLib's own flags. FOLDER is for PYTHONPATH.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import numpy
from setuptools import Extension, setup

VERSION = "3.0.0"
RAYLIB = "raylib-5.5_linux_amd64"
KEEP_SOURCES = """
import os, shutil
shutil.copytree(os.getcwd(), os.environ["PUFFERLIB_SOURCES"])
raise SystemExit("sources kept")
"""


def fetch(folder):
    with tempfile.TemporaryDirectory() as scratch:
        stand_in = pathlib.Path(scratch, "torch")
        stand_in.mkdir()
        (stand_in / "__init__.py").write_text(KEEP_SOURCES)
        sources = pathlib.Path(scratch, "sources")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
        command += ["--no-build-isolation", "--no-binary", ":all:", "--dest", scratch, f"pufferlib=={VERSION}"]
        environment = {**os.environ, "PYTHONPATH": scratch, "PUFFERLIB_SOURCES": str(sources)}
        pip = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not sources.is_dir():
            sys.exit(f"pip did not fetch pufferlib {VERSION}: {pip.stderr.strip()}")
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("pufferlib", RAYLIB):
            without = shutil.ignore_patterns("resources")
            shutil.copytree(sources / name, folder / name, ignore=without)


def build(folder):
    # Away from the source package's pyproject.toml, which setuptools would read.
    os.chdir(folder)
    binding = Extension(
        "pufferlib.ocean.cartpole.binding",
        ["pufferlib/ocean/cartpole/binding.c"],
        include_dirs=[numpy.get_include(), f"{RAYLIB}/include"],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"), ("PLATFORM_DESKTOP", None)],
        extra_compile_args=["-O2", "-flto", "-Wno-alloc-size-larger-than", "-Wno-implicit-function-declaration"],
        extra_link_args=["-fwrapv", "-O2", "-Bsymbolic-functions"],
        extra_objects=[f"{RAYLIB}/lib/libraylib.a"],
    )
    setup(name="pufferlib-cartpole", packages=[], ext_modules=[binding], script_args=["-q", "build_ext", "--inplace"])


def main():
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.exit("the source package holds raylib for Linux on x86-64 only")
    folder = pathlib.Path(sys.argv[1]).resolve()
    fetch(folder)
    build(folder)


if __name__ == "__main__":
    main()
