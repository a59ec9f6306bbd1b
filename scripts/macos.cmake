# Zig's C++ compiler for macOS on 64-bit Arm, whose headers and stubs of the system's libraries it brings.
# ONEHOP_COMPILERS is a folder with programs named cc, c++, ar and ranlib; macos_check.py makes it.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_C_COMPILER ${ONEHOP_COMPILERS}/cc)
set(CMAKE_CXX_COMPILER ${ONEHOP_COMPILERS}/c++)
set(CMAKE_AR ${ONEHOP_COMPILERS}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${ONEHOP_COMPILERS}/ranlib CACHE FILEPATH "")
# Nothing is installed, so no path in a library is changed.
set(CMAKE_INSTALL_NAME_TOOL true)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ONEHOP_COMPILERS)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
