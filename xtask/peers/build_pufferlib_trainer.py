"""Builds PufferLib's C CartPole and its advantage kernel, which its trainer needs: python build_pufferlib_trainer.py FOLDER

What `build_pufferlib.py` does, and then the one C++ extension of torch. FOLDER is for PYTHONPATH.
"""

import os
import pathlib
import sys

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

import build_pufferlib


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    build_pufferlib.fetch(folder)
    build_pufferlib.build(folder)
    os.chdir(folder)
    kernel = CppExtension("pufferlib._C", ["pufferlib/extensions/pufferlib.cpp"], extra_compile_args=["-O3"])
    command = {"build_ext": BuildExtension.with_options(use_ninja=False)}
    setup(name="pufferlib-kernel", packages=[], ext_modules=[kernel], cmdclass=command,
          script_args=["-q", "build_ext", "--inplace"])


if __name__ == "__main__":
    main()
