"""Letters to sounds by espeak-ng, a library in C.

It is imported in the engine's process only. Its licence, the GPL, is why nothing else of it is used here.
"""

from __future__ import annotations

import ctypes
import threading

from lemonade.errors import ModelLoadError

# From espeak-ng's `speak_lib.h`.
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_UTF8 = 1
_IPA = 0x02
_WITH_TIE = 0x80

#: Joins the letters of one sound, such as the two of a diphthong.
TIE = "^"

#: Languages (BCP 47) to espeak-ng's names of its voices, where they differ.
_VOICES = {"en-GB": "en", "en-US": "en-us", "pt-BR": "pt-br", "zh": "cmn"}


class Espeak:
    """The library, which has one state for the whole process.

    Raises:
        ModelLoadError: it cannot be loaded.
    """

    _lock = threading.Lock()

    def __init__(self) -> None:
        import espeakng_loader

        try:
            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        except OSError as error:
            raise ModelLoadError(f"espeak-ng, which knows how words sound, cannot be loaded: {error}") from error
        data = espeakng_loader.get_data_path().encode()
        self._library.espeak_Initialize.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
        self._library.espeak_SetVoiceByName.argtypes = [ctypes.c_char_p]
        to_phonemes = self._library.espeak_TextToPhonemes
        to_phonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
        to_phonemes.restype = ctypes.c_char_p
        if self._library.espeak_Initialize(_SYNCHRONOUS, 0, data, _DO_NOT_EXIT) < 0:
            raise ModelLoadError("espeak-ng, which knows how words sound, does not find its data")
        self._voice = ""

    def sounds(self, text: str, language: str) -> str:
        """The International Phonetic Alphabet for a text without punctuation, words apart; parts of one sound are
        joined by `TIE`, and words of another language stand behind its name in brackets."""
        mode = (ord(TIE) << 8) | _WITH_TIE | _IPA
        with self._lock:
            self._speak(language)
            buffer = ctypes.c_char_p(text.encode())
            rest = ctypes.pointer(buffer)
            clauses = []
            while rest.contents.value is not None:
                clauses.append(self._library.espeak_TextToPhonemes(rest, _UTF8, mode))
        return " ".join(clause.decode().strip() for clause in clauses if clause)

    def _speak(self, language: str) -> None:
        voice = _VOICES.get(language, language)
        if voice != self._voice:
            if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
                raise ValueError(f"espeak-ng does not speak {language}")
            self._voice = voice
