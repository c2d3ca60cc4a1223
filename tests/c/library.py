"""libcbt.so.1 as tests call it by ctypes, as any language would. Not a test."""

import ctypes


class Failed(Exception):
    """A call of the library that failed."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Library:
    """`texts`: functions that return one, without `cbt_`."""

    def __init__(self, path, *texts):
        self.c = ctypes.CDLL(str(path))
        for name in ("error_message_borrowed", "server_address_borrowed", *texts):
            getattr(self.c, f"cbt_{name}").restype = ctypes.c_char_p

    def call(self, name, *arguments):
        """The call cbt_<name>(arguments..., &error)."""
        error = ctypes.c_void_p()
        code = getattr(self.c, f"cbt_{name}")(*arguments, ctypes.byref(error))
        if code:
            message = self.c.cbt_error_message_borrowed(error).decode()
            self.c.cbt_error_free(error)
            raise Failed(code, message)

    def make(self, name, *arguments):
        made = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(made))
        return made
