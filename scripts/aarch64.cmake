# Debian's cross compiler for 64-bit Arm: apt install g++-aarch64-linux-gnu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Programs are this machine's; libraries and headers are Arm's, but Python's headers, which are given.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
