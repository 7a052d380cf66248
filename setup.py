"""Build of the compiled core, aiokq.fastpath, which is left out on a machine without a compiler.

All other metadata is in pyproject.toml. AIOKQ_REQUIRE_COMPILED=1 makes a failed build an error,
AIOKQ_PURE=1 skips the build. AIOKQ_BUILD_PROGRESS names a file that gets lines about the progress,
because pip hides the output of a build, which takes minutes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
PACKAGE = ROOT / "aiokq"
REQUIRED = os.environ.get("AIOKQ_REQUIRE_COMPILED") == "1"
SKIPPED = os.environ.get("AIOKQ_PURE") == "1" and not REQUIRED

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PROGRESS = os.environ.get("AIOKQ_BUILD_PROGRESS")

WARNING = """
************************************************************************************
* aiokq: the compiled core was not built; the pure Python one, several times slower,
* is installed in its place. The reason:
*   {reason}
* A C compiler and Python.h are needed: apt install gcc python3-dev (Debian, Ubuntu),
* xcode-select --install (macOS). Then install aiokq again.
************************************************************************************
"""


def warn(reason: object) -> None:
    print(WARNING.format(reason=reason), file=sys.stderr)


def tell(progress: str) -> None:
    if PROGRESS:
        with contextlib.suppress(OSError), open(PROGRESS, "a") as file:
            file.write(f"aiokq: {progress}\n")


def extensions() -> list[Extension]:
    if SKIPPED:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError as error:
        if REQUIRED:
            raise
        warn(error)
        return []
    units = runpy.run_path(str(PACKAGE / "fastpath" / "units.py"))
    source_hash = units["source_hash"](PACKAGE)
    unix = os.name == "posix"
    core = [
        Extension(
            name,
            [f"aiokq/{source}"],
            depends=[str(path.relative_to(ROOT)) for path in units["sources"](PACKAGE)],
            include_dirs=["."],
            define_macros=[("AIOKQ_SOURCE_HASH", f'"{source_hash}"')],
            extra_compile_args=["-O3", "-g0", "-fno-strict-aliasing"] if unix else [],
        )
        for name, source in units["extensions"]()
    ]
    tell(f"translating the {len(core)} modules of the core to C ...")
    return cythonize(
        core,
        # Other ways to start processes would run this file again.
        nthreads=CORES if multiprocessing.get_start_method() == "fork" else 0,
        build_dir="build/cython",
        language_level=3,
        force=True,
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "auto_pickle": False,
        },
    )


class BuildExt(build_ext):
    """Builds all extensions, or drops all of them if one fails to build.

    Extension(optional=True) would drop only the extension that failed, and an editable install
    would fail.
    """

    def run(self) -> None:
        # The hash of the sources is a macro: setuptools does not see that it changed.
        self.force = True
        self.parallel = self.parallel or CORES
        self.compiled = 0
        try:
            super().run()
        except Exception as error:
            if REQUIRED:
                raise
            warn(error)
            # A wheel gets all files in build_lib. An editable install gets those of the extensions
            # in self.extensions.
            for extension in self.extensions:
                built = Path(self.build_lib, self.get_ext_filename(extension.name))
                built.unlink(missing_ok=True)
            self.extensions = []

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        self.compiled += 1
        tell(f"compiled {self.compiled} of {len(self.extensions)} modules of the core")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt})
