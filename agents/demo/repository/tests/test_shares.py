"""Who pays how much."""

import unittest

from split import shares


class SharesTest(unittest.TestCase):
    def test_an_even_bill_is_the_same_for_everybody(self):
        self.assertEqual(shares(90, ["ada", "ben", "cleo"]), {"ada": 30, "ben": 30, "cleo": 30})

    def test_one_person_pays_everything(self):
        self.assertEqual(shares(12.5, ["ada"]), {"ada": 12.5})
