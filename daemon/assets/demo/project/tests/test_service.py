import unittest

from todo.service import Invalid, NotFound, Service


class ServiceTest(unittest.TestCase):
    def setUp(self):
        self.service = Service()

    def test_lists_in_order(self):
        self.service.add_todo("bread")
        self.service.add_todo("milk")
        titles = [todo["title"] for todo in self.service.list_todos()["todos"]]
        self.assertEqual(titles, ["bread", "milk"])

    def test_refuses_an_empty_title(self):
        with self.assertRaises(Invalid):
            self.service.add_todo("  ")

    def test_finishes(self):
        todo = self.service.add_todo("bread")
        self.assertTrue(self.service.finish_todo(todo["id"])["done"])
        with self.assertRaises(NotFound):
            self.service.finish_todo(99)


if __name__ == "__main__":
    unittest.main()
